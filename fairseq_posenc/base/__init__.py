"""What every floor above uses: errors, files, output folders, flags of commands, records, figures."""
