"""The command line: one module for each group of commands, and code that the commands share."""
