"""Reports on models: several of them asked the same cases, measured, compared case by case, and shown."""
