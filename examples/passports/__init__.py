"""Digital product passports: parsed, compiled, signed and told of by a chain of jobs."""
