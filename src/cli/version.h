/*
 * The version that `yoke --version` prints; equal to the project's in CMakeLists.txt (tests/test_cli.c compares).
 */
#ifndef YOKE_CLI_VERSION_H
#define YOKE_CLI_VERSION_H

#define YOKE_VERSION "0.1.0"

#endif
