"""Many seeds trained as one program: the bank, its queue, and the rules that end a seed."""
