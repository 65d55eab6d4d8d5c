"""Rules of what operators see: doctor, drift, metrics, logs, spans, unit files. Pure."""
