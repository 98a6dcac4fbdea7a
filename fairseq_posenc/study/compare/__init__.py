"""The comparison of schemes: runs under equal conditions, their statistics, and the report."""
