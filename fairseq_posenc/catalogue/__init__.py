"""What there is and what it costs: tables made from the live modules."""
