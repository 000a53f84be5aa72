"""What the files of each format say about their graphs, one module a format."""
