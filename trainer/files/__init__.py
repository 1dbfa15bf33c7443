"""Files that survive a crash, and the installed versions."""
