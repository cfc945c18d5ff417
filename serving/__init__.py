"""The server, its checks before anything heavy starts, and the parent process that ends it cleanly."""
