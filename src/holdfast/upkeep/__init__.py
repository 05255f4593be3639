"""What must be done now and then by somebody: one worker of the fleet leads."""
