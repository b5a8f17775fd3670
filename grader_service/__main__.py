"""``python -m grader_service``."""

from grader_service.main import main

main()
