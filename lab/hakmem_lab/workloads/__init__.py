"""What is run: tables of cells and of programs, and the servers and inputs that they need."""
