"""One run, one pair, one study: processes started under known conditions, and their samples."""
