"""``raydebm policies``: the commands, and how a comparison is printed."""
