"""Weight formats and the file that holds them."""
