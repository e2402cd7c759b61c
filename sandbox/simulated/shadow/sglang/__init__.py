"""What a server process finds in place of the real package."""
