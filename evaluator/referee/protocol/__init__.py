"""What the referee and its runners both read: messages, where tensors lie, input families. Executes nothing foreign."""
