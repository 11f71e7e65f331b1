// SPDX-License-Identifier: Apache-2.0

package testenv

import "os"

// nightlyVariable is set by `make nightly`.
const nightlyVariable = "AGENTPLATFORM_NIGHTLY"

// Nightly reports whether tests run in `make nightly`. Otherwise thorough tests check a sample: see
// docs/testing.md.
func Nightly() bool { return os.Getenv(nightlyVariable) != "" }
