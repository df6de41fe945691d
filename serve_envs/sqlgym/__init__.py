"""SQL questions over a real database: all flights that left New York City in 2013."""
