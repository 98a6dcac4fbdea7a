"""Studies: :mod:`.study` (a folder and its runs), :mod:`.grid` (one run), :mod:`.report`, :mod:`.statistics`."""
