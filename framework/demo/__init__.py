"""What `streamfold demo` runs: real flights, counted and recounted."""
