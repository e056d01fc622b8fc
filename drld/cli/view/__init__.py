"""What `drlctl top` draws: functions of samples, the operator's choices and the screen."""
