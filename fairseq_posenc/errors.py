"""What is wrong with a run before it begins."""

REFUSED = 2  # exit status


class Refused(ValueError):
    """A run that cannot be meant. Every process of it finds this alike, so that one need say it."""
