"""The job that styles of synchronisation train on: network, data, rounding bounds, and the check of every step."""
