"""A model hub on this computer: what a folder holds, over HTTP, as Hugging Face documents its own hub.

FOLDER/<owner>/<name>/ is a repository and its branch `main`, FOLDER/<owner>/<name>@<branch>/ another branch of it, and
FOLDER/<owner>/<name>.json (optional) what its model card says: {"license": "mit", "date": "2026-05-28T00:00:00.000Z"}.
Commits, trees and blobs have the ids that git would give them; large files have LFS pointers and the sha256 of what
they hold. Faults are in faults.py, how to run it is in __main__.py (a command) and running.py (from a test).
"""
