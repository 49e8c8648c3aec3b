"""What runs inside the sandbox. It stands alone: it imports nothing of raydebm, and is a package of its own there."""
