// SPDX-License-Identifier: Apache-2.0

package controllertest_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestControllertest_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "controllertest")
}
