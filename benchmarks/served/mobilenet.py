"""A TensorFlow model under TensorFlow Serving's REST paths, by LitServe.

python mobilenet.py 8000

One process answers HTTP, another computes: POST /v1/models/mobilenet:predict takes
{"instances": [{"b64": JPEG}]}.
"""

import base64
import sys
from typing import Any

import litserve

SIDE = 224


class Predict(litserve.LitAPI):
    """Decodes images, computes, and answers with scores of a thousand classes."""

    def setup(self, device: str) -> None:
        """Build the network where it will run."""
        import tensorflow as tf

        tf.keras.utils.set_random_seed(0)
        net = tf.keras.applications.MobileNet(weights=None, classifier_activation=None)
        for layer in net.layers:  # or an untrained network answers everything alike
            if hasattr(layer, "momentum"):
                layer.momentum = 0.0
        net(tf.random.uniform((16, SIDE, SIDE, 3), -1.0, 1.0), training=True)
        images = tf.TensorSpec((None, SIDE, SIDE, 3))
        self.tf = tf
        self.call = tf.function(lambda x: net(x, training=False), input_signature=[images])
        self.call(tf.zeros((1, SIDE, SIDE, 3)))

    def decode_request(self, request: dict[str, Any]) -> Any:
        """Return the images of a request, between -1 and 1."""
        images = [
            self.tf.io.decode_jpeg(base64.b64decode(each["b64"]), channels=3)
            for each in request["instances"]
        ]
        return self.tf.cast(self.tf.stack(images), self.tf.float32) / 127.5 - 1.0

    def predict(self, x: Any) -> Any:
        """Compute the scores."""
        return self.call(x).numpy()

    def encode_response(self, output: Any) -> dict[str, Any]:
        """Put them as TensorFlow Serving does."""
        return {"predictions": output.tolist()}


if __name__ == "__main__":
    litserve.LitServer(Predict(api_path="/v1/models/mobilenet:predict"), accelerator="cpu").run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning"
    )
