"""The parts that every series of runs needs: cases, parallel runs, resume, checks, documents."""
