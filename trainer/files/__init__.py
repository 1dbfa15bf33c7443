"""Files that survive a crash, the installed versions, and a bank's saved state."""
