"""Start the subject server."""

from grader_service.subject.server import main

main()
