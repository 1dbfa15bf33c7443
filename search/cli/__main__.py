"""`python -m search.cli`: the command where no script of it is on the path."""

from search.cli import main

main()
