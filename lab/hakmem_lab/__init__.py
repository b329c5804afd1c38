"""The laboratory: measures hakmem beside other allocators so that noise is never called a win."""
