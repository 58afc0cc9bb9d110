"""The training job that styles of synchronisation are compared on: network, data, rounding bounds, check of every step."""
