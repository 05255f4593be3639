"""Digital product passports: parsed, compiled, signed and announced by a chain of jobs."""
