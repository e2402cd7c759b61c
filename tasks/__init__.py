"""The steps of deploy.py, one module each."""
