"""Many runs: :mod:`.record` (what a folder was made from), :mod:`.grid` (resumable runs), :mod:`.log`, :mod:`.statistics`."""
