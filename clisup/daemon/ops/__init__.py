"""Operations: status, doctor, metrics, traces, retention and clean-up, with a daemon and without."""
