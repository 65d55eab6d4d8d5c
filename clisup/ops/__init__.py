"""Rules for operators' views: doctor, drift, metrics, logs, spans, unit files. Pure."""
