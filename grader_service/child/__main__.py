"""Start the limited child."""

from grader_service.child.main import main

main()
