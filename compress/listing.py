"""The commands of compression, for `adder-search --help`."""

from search.cli.listed import Listed

COMMANDS = "compress.commands"
SECTION = "Checkpoints"

compress = Listed("compress", "Find a checkpoint's numbers that are zero or each other.", COMMANDS, SECTION)
diagnose = Listed("diagnose", "Show which directions of a checkpoint matter.", COMMANDS, SECTION)
