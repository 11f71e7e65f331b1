// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestEnvironment_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "environment")
}
