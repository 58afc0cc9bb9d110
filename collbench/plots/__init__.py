"""Pictures of measurements, of predictions, of systems and of where the time goes."""
