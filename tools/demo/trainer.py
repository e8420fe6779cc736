"""What the demo asks of hyperserve-train."""
