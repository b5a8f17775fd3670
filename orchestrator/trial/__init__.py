"""One trial, from registration to verdict. Read ``run.py`` first."""
