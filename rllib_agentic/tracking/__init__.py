"""What people see of a run: MLflow, the terminal, the learning curve, the table at its end."""
