// SPDX-License-Identifier: Apache-2.0

package testenv

import "os"

// nightlyVariable is set by `make nightly`.
const nightlyVariable = "AGENTPLATFORM_NIGHTLY"

// Nightly says whether tests run in `make nightly`. Tests that can be as thorough as they are
// given time check a sample otherwise: see docs/testing.md for what each of them leaves out.
func Nightly() bool { return os.Getenv(nightlyVariable) != "" }
