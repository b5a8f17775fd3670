"""What was typed. The sync edge: every command parses words, calls one async function and prints."""
