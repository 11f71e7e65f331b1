// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestGitFollower_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "gitfollower")
}
