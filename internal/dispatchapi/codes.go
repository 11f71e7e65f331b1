// SPDX-License-Identifier: Apache-2.0

package dispatchapi

// ModelErrors begins the codes of runs that failed at a model service. Their
// messages are for the project: who calls a webhook is told the code alone.
const ModelErrors = "model_"
