"""A real issue tracker for each session: work that takes many pages, judged by what is in the database afterwards."""
